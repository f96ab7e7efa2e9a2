//go:build !race

package outcomes_test

// raced says that these tests are slow.
const raced = false
