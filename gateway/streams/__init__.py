"""Taps on addresses: what an address accepted, kept in order with offsets, to be read again.

It knows messages in their stored form, offsets and floors; it knows no protocol, no queue and no
file. Layout: `stream` (the tail and what is durable), `subscription` (floors and fences), `plan`
(how far a batch goes), `retention` (what may be dropped), `rows` (runs to stored blocks),
`columns` (stored blocks to what readers see), `reading` (a range to Arrow IPC bytes), `registry`
(all of them, and their files).
"""
