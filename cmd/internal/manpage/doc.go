// Package manpage writes the manual pages of the programs, from the same verbs and flags
// that their help is made of.
//
//	text := manpage.Render(manpage.Verbs(root, manpage.Page{…}, nil))
//
// The pages are in fixtures/man, where make install takes them from. A test of each program
// compares its page with what is there, and writes it anew with UPDATE=1: so no program links
// this package. It keeps nothing, and is safe for concurrent use.
package manpage
