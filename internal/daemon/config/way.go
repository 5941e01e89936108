package config

import (
	"os"
	"path/filepath"
	"strings"
)

// linksMax bounds the symbolic links that are followed, as the kernel does.
const linksMax = 40

// wayTo gives the directories to watch for a file: the one it is in, and for each
// symbolic link on the way the one that holds the link; and the file itself, since
// one that is mounted alone has a directory in which nothing happens.
func wayTo(file string) (paths []string) {
	path := filepath.Clean(file)
	for range linksMax {
		paths = append(paths, filepath.Dir(path))
		link, rest := firstLink(path)
		if link == "" {
			break
		}
		target, err := os.Readlink(link)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(link), target)
		}
		paths = append(paths, filepath.Dir(link))
		path = filepath.Join(target, rest)
	}
	return append(paths, path)
}

// firstLink gives the first symbolic link in a path, and what comes behind it.
func firstLink(path string) (link, rest string) {
	names := strings.Split(path, string(filepath.Separator))
	for i := range names {
		prefix := strings.Join(names[:i+1], string(filepath.Separator))
		if prefix == "" {
			continue // the root
		}
		info, err := os.Lstat(prefix)
		if err != nil {
			return "", ""
		}
		if info.Mode()&os.ModeSymlink != 0 {
			return prefix, filepath.Join(names[i+1:]...)
		}
	}
	return "", ""
}
