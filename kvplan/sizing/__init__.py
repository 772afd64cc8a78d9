"""How a launch becomes pool sizes: integer arithmetic without torch."""
