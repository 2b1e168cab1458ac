"""Tools over the files of a store, beside a broker or without one: check, repair, copy, restore, settle, show."""
