// Package textcut cuts text that is too long, and never within a character.
//
//	textcut.Head(text, 4096)     // its beginning, as it stands
//	textcut.Tail(output, 4096)   // its end
//	textcut.Clip(name, 64)       // "a long na…": for messages and logs
//	textcut.Line(answer, 200)    // the same on one line
//	textcut.Name(path)           // whole; quoted if a line cannot show it
//
// All limits are bytes, a limit below 0 is 0, and no result is longer than its
// limit. Head, Tail and Whole return a part of what they are given: they copy
// nothing and repair nothing, so bytes that are not UTF-8 stay as they are. Clip
// and Line return UTF-8 whatever they are given. All functions are safe for
// concurrent use.
package textcut
