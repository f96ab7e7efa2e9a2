// Package page holds the page that a browser gets at GET / (SPEC §6.11): plain
// HTML, CSS and JavaScript, as they lie in this folder. They hold no secret, and
// whoever asks gets them; what the page shows it asks for with the key that is
// pasted into it.
//
//	if file, ok := page.Find(path); ok {
//		page.Head(w.Header())
//		write(w, file.Type, file.Body)
//	}
//
// It knows neither keys nor agents. All of it is safe for concurrent use.
package page
