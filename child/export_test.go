package child

// NewNote makes a note of a command.
var NewNote = newNote
