"""What pages take from people: text into values, with words about what does not fit."""
