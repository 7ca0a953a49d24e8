"""Tables with rows of any ids in a process without servers, for inference."""
