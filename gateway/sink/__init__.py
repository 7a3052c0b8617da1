"""The sink: batches that a program stages here and publishes whole, exactly once.

settings     the bounds
ledger       what each producer has committed, and what a commit does next (pure)
staging      which stages there are, and how many bytes they have (pure)
framing      the messages of a stage's Arrow stream, bounded before they are read (pure)
checking     a stage judged before it is kept (pure)
encoding     rows of Arrow batches to AMQP messages (pure)
reading      a stage read in slices, on a thread
ways         whether a batch can be sent at all, asked before it begins
places       how many stages are read at a time
publication  one commit on its way, a slice in each turn
sink         all of it joined: what the HTTP API calls
"""
