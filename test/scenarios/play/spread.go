package play

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// spread is the end of a question, x3000 each 850..1150: how many connections, and
// how many of them each endpoint gets.
type spread struct {
	times, least, most int
}

// parseSpread takes it off the end of the words.
func parseSpread(words []string) (spread, []string, error) {
	var s spread
	rest := words
	if n := len(rest); n >= 2 && rest[n-2] == "each" {
		least, most, ok := strings.Cut(rest[n-1], "..")
		var errs [2]error
		s.least, errs[0] = strconv.Atoi(least)
		s.most, errs[1] = strconv.Atoi(most)
		if err := errors.Join(errs[:]...); !ok || err != nil {
			return s, nil, fmt.Errorf("each %s: want MIN..MAX", rest[n-1])
		}
		rest = rest[:n-2]
	}
	if n := len(rest); n >= 1 && len(rest[n-1]) > 1 && rest[n-1][0] == 'x' {
		if times, err := strconv.Atoi(rest[n-1][1:]); err == nil {
			s.times, rest = times, rest[:n-1]
		}
	}
	if s.most > 0 && s.times == 0 {
		return s, nil, errors.New("each needs a number of connections: x3000 each 850..1150")
	}
	return s, rest, nil
}

func (s spread) judge(q fixture.Question, seen map[fixture.Answer]int) error {
	if s.most == 0 {
		return nil
	}
	for answer, n := range seen {
		if n < s.least || n > s.most {
			return fmt.Errorf("%v: %v %d of %d times, want %d to %d", q, answer, n, s.times, s.least, s.most)
		}
	}
	return nil
}
