"""The configuration read again while the gateway runs: by SIGHUP, or over the API.

    read      on a thread: file, environment, options, users; everything that is wrong, at once
    compare   with what is in force: key by key, each with what its change reaches
    judge     what contradicts what exists refuses all of it; until here nothing has changed
    apply     in bounded steps, so that messages go on meanwhile
    tell      the log, and who asked

One at a time: who comes meanwhile waits, and has an answer of its own.
"""
