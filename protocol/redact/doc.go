// Package redact takes the secrets of a model's service out of what the service
// says, and the façade's keys out of any text, and says of a failed request what a
// log may have.
//
//	secrets := redact.New(key, baseURL)
//	text = secrets.Text(text)              // an error, for people
//	stream := redact.NewStream(secrets)    // an answer, as it comes
//	out := stream.Next(piece)
//	reason := redact.ScrubError(err)       // for a log
//	line = redact.Keys(line)               // without keys of the façade
//
// Secrets do not change and are safe for concurrent use; a Stream belongs to its
// caller. The package cannot know of secrets that it was not told, but for what
// keys of the façade look like. See SPEC.md §5.7 and §6.6.
package redact
