// Package generate makes scenarios up. A seed decides which Services, slices and
// node facts there are, how they change, and what is asked at each quiet point;
// package reference says what has to come out. What it makes is the text of a
// scenario, so that a failure is a scenario that anybody can read, shorten and keep:
//
//	draft ──► annotate ──► play ──► fails? ──► shrink ──► a few lines of text
//	 seed     reference     world
//
// A draft has statements and questions without answers. The answers are worked out
// anew for each draft, so that a shortened one asks for what is right.
package generate
