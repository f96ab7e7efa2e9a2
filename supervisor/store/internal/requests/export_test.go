package requests

// Bounds, for tests.
const (
	MaxOutcomes = maxOutcomes
	MaxText     = maxText
	MaxTexts    = maxTexts
	MaxGrowth   = maxGrowth
)

// Again reads a file, and what it amounts to written anew.
func Again(data []byte) (again []byte, good, ended, waiting int, err error) {
	s, good, err := parse(data)
	if err != nil {
		return nil, 0, 0, 0, err
	}
	again, _ = s.encode()
	return again, good, len(s.done), len(s.open), nil
}
