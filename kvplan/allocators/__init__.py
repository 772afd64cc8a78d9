"""Who owns which slot: free lists on the device."""
