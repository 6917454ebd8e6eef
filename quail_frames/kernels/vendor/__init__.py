"""Operations by other people's libraries. Each comes with a check against the reference, run before it is chosen."""
