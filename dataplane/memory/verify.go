package memory

// verify does what the kernel does when a table is replaced: it looks for
// targets that have no place in the table, or in a hook from which a packet can
// get to them, for loops, and for accounting objects that do not exist. As in
// the kernel, a chain that no hook leads to may hold anything else.
func (s *stage) verify() error {
	for _, c := range s.changed {
		if c == nil {
			continue
		}
		for _, r := range c.rules {
			if r.target != nil && r.target.allowed(s.table) == 0 {
				return errInvalid
			}
			if !s.kernel.accounted(r) {
				return errNoFile
			}
		}
	}
	v := verifier{stage: s, callers: s.newCallers(), seen: make(map[string]hookSet), path: make(map[string]bool)}
	for name, c := range s.changed {
		if c == nil {
			continue
		}
		if err := v.descend(name, v.hooks(name, make(map[string]bool))); err != nil {
			return err
		}
	}
	return nil
}

// The kernel's own words, which the tools pass on.
var (
	errInvalid = refusal("Invalid argument.")
	errNoFile  = refusal("No such file or directory.")
	errLoop    = refusal("Too many levels of symbolic links.")
)

// newCallers gives, for each chain, the changed chains that jump to it.
func (s *stage) newCallers() map[string][]string {
	callers := make(map[string][]string)
	for name, c := range s.changed {
		if c == nil {
			continue
		}
		for _, r := range c.rules {
			if to := r.jump(); to != "" {
				callers[to] = append(callers[to], name)
			}
		}
	}
	return callers
}

// verifier walks the graph of jumps around the changed chains, so that the work
// is in proportion to what can be reached from them.
type verifier struct {
	stage   *stage
	callers map[string][]string
	// seen are the hooks under which a chain was looked at.
	seen map[string]hookSet
	// path are the chains between the changed one and the one at hand.
	path map[string]bool
}

// hooks tells from which hooks packets get to a chain.
func (v *verifier) hooks(name string, visited map[string]bool) hookSet {
	if visited[name] {
		return 0
	}
	visited[name] = true
	if v.stage.base.isBuiltin(name) {
		return hookOf[name]
	}
	var from hookSet
	for _, caller := range v.callers[name] {
		from |= v.hooks(caller, visited)
	}
	for caller := range v.stage.base.callers[name] {
		if _, changed := v.stage.changed[caller]; !changed {
			from |= v.hooks(caller, visited)
		}
	}
	return from
}

// descend looks at a chain that packets reach from the given hooks, and at all
// chains behind it.
func (v *verifier) descend(name string, from hookSet) error {
	if from == 0 {
		return nil
	}
	if v.path[name] {
		return errLoop
	}
	if from&^v.seen[name] == 0 {
		return nil
	}
	v.seen[name] |= from
	v.path[name] = true
	defer delete(v.path, name)
	for _, r := range v.stage.chain(name).rules {
		if r.target == nil {
			continue
		}
		if from&^r.target.allowed(v.stage.table) != 0 {
			return errInvalid
		}
		if to := r.jump(); to != "" {
			if err := v.descend(to, from); err != nil {
				return err
			}
		}
	}
	return nil
}
