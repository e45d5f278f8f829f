"""What a private plan costs this node's data set: asked before it is joined, paid before it is computed."""
