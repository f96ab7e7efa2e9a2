package scripted

import (
	"fmt"
	"strings"
	"time"

	"nexus.internal/child/provider"
)

const (
	longTextSentences = 200
	longTextPause     = 20 * time.Millisecond // between two words
)

// The long text is put together from these: subject, verb and object turn at
// different speeds, so that no two sentences near each other are the same.
var (
	subjects = []string{
		"A supervisor", "Each agent", "The parent process", "A quiet program", "One small part",
		"The conversation", "Every careful design",
	}
	verbs = []string{
		"watches over", "answers for", "survives", "writes down", "waits for", "lets go of",
		"starts again after", "keeps apart", "counts", "outlives", "makes room for",
	}
	objects = []string{
		"the work that was given to it", "a failure that nobody expected", "what others have begun",
		"the message that came last", "a neighbour that has stopped", "its own short history", "the promise it made at the start",
		"the pipe between two processes", "a turn that never seems to end", "the memory of what was said",
		"an answer that is still on its way", "the signal to come to rest", "all that it does not own",
	}
)

// longText streams long enough to be cancelled: about 50 seconds.
func longText(w *answerWriter, _ provider.Request, prompt string) bool {
	asked := normalize(prompt)
	if !strings.HasPrefix(asked, "write a long essay") && !strings.HasPrefix(asked, "write an essay") {
		return false
	}
	var text strings.Builder
	text.WriteString("An essay made of fixed words, by a model that is none. ")
	for i := range longTextSentences {
		fmt.Fprintf(&text, "%s %s %s (%d of %d).", subjects[i%len(subjects)], verbs[i%len(verbs)],
			objects[i%len(objects)], i+1, longTextSentences)
		if i+1 < longTextSentences {
			text.WriteByte(' ')
		}
	}
	w.say(text.String(), longTextPause)
	return true
}
