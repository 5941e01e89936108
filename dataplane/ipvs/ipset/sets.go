package ipset

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"
)

// Create makes sets, and gives a result per set. A set that exists just so is
// success, with its entries left alone; another one of the name is ErrDifferent.
func (s *Socket) Create(ctx context.Context, specs []Spec) []error {
	results := make([]error, len(specs))
	revisions := make([]uint8, len(specs))
	var about []int
	for i, spec := range specs {
		revisions[i], results[i] = s.revision(spec.Type, spec.Family)
		if results[i] == nil {
			about = append(about, i)
		}
	}
	var exist []int
	for _, flags := range []uint16{unix.NLM_F_EXCL, 0} {
		messages := make([][]byte, len(about))
		for at, i := range about {
			messages[at] = createMessage(s.protocol, flags, specs[i], revisions[i])
		}
		exist = nil
		for at, a := range s.exchange(ctx, messages) {
			i := about[at]
			results[i] = outcome("create "+specs[i].Name+" ("+specs[i].String()+")", a)
			// First, those that exist; then, those of them that are the same to the kernel.
			if flags != 0 && errors.Is(results[i], ErrDifferent) || flags == 0 && results[i] == nil {
				exist = append(exist, i)
			}
		}
		about = exist
	}
	s.compareFamilies(ctx, specs, exist, results)
	return results
}

// compareFamilies corrects the results of sets that exist: to the kernel, two
// sets that differ by the family of their addresses only are the same
// (ip_set_create; seen with Linux 6.18).
func (s *Socket) compareFamilies(ctx context.Context, specs []Spec, exist []int, results []error) {
	if len(exist) == 0 {
		return
	}
	sets, err := s.Headers(ctx, nil)
	families := make(map[string]Family, len(sets))
	for _, set := range sets {
		families[set.Name] = set.Family
	}
	for _, i := range exist {
		switch family, found := families[specs[i].Name]; {
		case err != nil:
			results[i] = err
		case found && family != specs[i].Family:
			results[i] = refused("create "+specs[i].Name+" ("+specs[i].String()+")", unix.EEXIST)
		}
	}
}

// Destroy removes sets with their entries, and gives a result per set. A set that
// is not there is success; one that a rule refers to is ErrInUse.
func (s *Socket) Destroy(ctx context.Context, names []string) []error {
	results := s.named(ctx, cmdDestroy, "destroy ", names)
	for i, err := range results {
		if errors.Is(err, ErrNoSet) {
			results[i] = nil
		}
	}
	return results
}

// Flush removes all entries of sets, and gives a result per set.
func (s *Socket) Flush(ctx context.Context, names []string) []error {
	return s.named(ctx, cmdFlush, "flush ", names)
}

func (s *Socket) named(ctx context.Context, command uint8, verb string, names []string) []error {
	messages := make([][]byte, len(names))
	for i, name := range names {
		messages[i] = nameMessage(command, unix.NLM_F_ACK, s.protocol, name)
	}
	results := make([]error, len(names))
	for i, a := range s.exchange(ctx, messages) {
		results[i] = outcome(verb+names[i], a)
	}
	return results
}

// Rename gives a set another name. The kernel refuses this while a rule refers
// to the set (ErrInUse).
func (s *Socket) Rename(ctx context.Context, name, newName string) error {
	a := s.exchange(ctx, [][]byte{nameMessage(cmdRename, unix.NLM_F_ACK, s.protocol, name, newName)})[0]
	return outcome("rename "+name+" to "+newName, a)
}

// Swap exchanges the names of two sets of one type and family at one instant:
// rules that ask one of the names find the content of the other set from then on.
func (s *Socket) Swap(ctx context.Context, one, other string) error {
	a := s.exchange(ctx, [][]byte{nameMessage(cmdSwap, unix.NLM_F_ACK, s.protocol, one, other)})[0]
	return outcome("swap "+one+" and "+other, a)
}
