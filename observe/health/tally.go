package health

// Tally is how much there is of one kind of finding at one place, for a gauge.
type Tally struct {
	Kind Kind
	// Domain is empty for a kind that is about the whole node, or about what is
	// read from the API.
	Domain string
	// Count is 0 where nothing is found, and else the number of Services or API
	// resources concerned, or 1 for what has none.
	Count int
}

// ofDomain tells whether findings of a kind are about one domain each.
func (k Kind) ofDomain() bool {
	switch k {
	case FirstWriteHeld, NodeAtFault, WriteFailing, BatchStuck, AuditFailing, Drift, Quarantined:
		return true
	default:
		return false
	}
}

// Tallies counts what Report finds. Every kind is listed, found or not, those of
// domains once per domain: the list is as long on a good day as on a bad one, and
// does not grow with the cluster.
func (m *Monitor) Tallies() []Tally {
	p := m.picture()
	type at struct {
		kind   Kind
		domain string
	}
	counts := map[at]int{}
	for _, f := range p.findings() {
		where := at{kind: f.Kind}
		if f.Kind.ofDomain() {
			where.domain = f.About
		}
		counts[where] += max(1, len(f.Services)+f.More)
	}
	var all []Tally
	for _, kind := range Kinds() {
		if !kind.ofDomain() {
			all = append(all, Tally{kind, "", counts[at{kind: kind}]})
			continue
		}
		for i := range p.domains {
			domain := p.domains[i].Status.Domain
			all = append(all, Tally{kind, domain, counts[at{kind, domain}]})
		}
	}
	return all
}
