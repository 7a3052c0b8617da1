"""The audit trail: who came in or was refused, and who changed what, in files that show tampering.

note ──> recorder (sums floods) ──> thread ──> trail (chain of lines, rotated files)
verify <── files, head, keys                    print <── files
"""
