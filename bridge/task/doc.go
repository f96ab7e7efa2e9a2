// Package task says to a model what is wanted of it as a planner or as an
// executor, and reads its answer.
//
//	text := task.ExecutePrompt(params)
//	answer, err := task.ReadAnswer(reply) // *task.ShapeError: ask once more with
//	text = task.RepairPrompt(err)
//
// The same parameters always make the same prompt, so that a request_id can be
// used again. An answer is the JSON object with which a reply ends, fenced or
// not, or else the only one of the shape in it, on lines of its own; what stands
// around it is passed over.
//
// Functions are pure and safe for concurrent use. The package asks nobody and
// believes nothing that it did not read: which files were changed it leaves to
// others. The contract is SPEC.md §6.7.
package task
