package netns
