package dataplane

// Naming reads what a backend has put into the identities of its objects. The core
// knows no container by name: whoever renders an object also says which frontend it
// is for and which other object it goes with. All methods are pure, and as cheap as
// one look into a map: the ledger calls them for each claim that changes.
type Naming interface {
	// Frontend returns the frontend that an object is for; false for an object that
	// Services share, or that comes along with another object of the frontend.
	Frontend(id ID) (Frontend, bool)
	// Lead returns the object that an object goes with: of all Services that want
	// something about a frontend, only the one that nobody older outranks at the lead
	// gets it. False for an object on its own.
	Lead(id ID) (ID, bool)
	// Leads reports whether other objects go with this one.
	Leads(id ID) bool
	// LedLead returns the lead that goes with this one and may have an owner who
	// makes no claim for this one; false for none.
	LedLead(id ID) (ID, bool)
}
