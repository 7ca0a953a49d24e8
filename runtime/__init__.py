"""What runs distributed programs: parameter servers, their clients, communicators, launchers."""
