"""Launch lines, start-up logs, budgets and lock files."""
