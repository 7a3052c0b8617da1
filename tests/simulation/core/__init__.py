"""The whole core on a simulated disk: broker, queues, pages, transactions, from one seed."""
