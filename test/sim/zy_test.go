package sim

import (
	"fmt"
	"os"
	"testing"
)

func TestZY(t *testing.T) {
	for _, s := range zz {
		if fmt.Sprint(s.seed) != os.Getenv("Z") {
			continue
		}
		for _, e := range s.events {
			if e.do == setService || e.do == rejectService || e.do == stallService {
				fmt.Printf("%v %+v\n", e, specOf(e.n, e.variant))
			}
		}
		if _, err := run(t, s, func(x string) { fmt.Println(x) }); err != nil {
			t.Errorf("%d %.600v", s.seed, err)
		}
	}
}

func TestZN(t *testing.T) {
	for _, n := range []int{0, 6, 10} { fmt.Println(keyOf(n)) }
}
