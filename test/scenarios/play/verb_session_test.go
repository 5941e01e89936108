package play

import "testing"

func TestSessionsHaveANameAndACount(t *testing.T) {
	for word, want := range map[string]int{"s1": 1, "many*200": 200, "many*1": 1} {
		name, count, err := times(word)
		if err != nil || count != want || name != word[:len(name)] || name == "" {
			t.Errorf("%s: got %q, %d, %v, want %d", word, name, count, err, want)
		}
	}
	for _, word := range []string{"many*", "many*0", "many*x"} {
		if _, _, err := times(word); err == nil {
			t.Errorf("%s: want an error", word)
		}
	}
}
