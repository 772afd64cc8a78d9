"""What a plan is made from: frozen, validated values."""
