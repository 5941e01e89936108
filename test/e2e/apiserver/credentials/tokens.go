package credentials

import (
	"crypto/rand"
	"fmt"
	"strings"
)

// openTokens reads the token file, or makes it, and returns the token of each user in order.
func openTokens(path string, users []user) ([]string, error) {
	content, err := keep(path, func() ([]byte, error) {
		var lines strings.Builder
		for _, u := range users {
			// token,user,uid,"groups"; an empty list of groups must be left out
			fmt.Fprintf(&lines, "%s,%s,%s", rand.Text(), u.name, u.name)
			if u.group != "" {
				fmt.Fprintf(&lines, ",%q", u.group)
			}
			lines.WriteByte('\n')
		}
		return []byte(lines.String()), nil
	})
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	if len(lines) != len(users) {
		return nil, fmt.Errorf("%s has %d lines for %d users; remove the folder to start over", path, len(lines), len(users))
	}
	tokens := make([]string, len(users))
	for i, line := range lines {
		token, rest, _ := strings.Cut(line, ",")
		if !strings.HasPrefix(rest, users[i].name+",") {
			return nil, fmt.Errorf("%s: line %d is not for user %s; remove the folder to start over", path, i+1, users[i].name)
		}
		tokens[i] = token
	}
	return tokens, nil
}
