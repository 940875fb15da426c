"""HTTP/2 as bytes in and bytes out, its connections and calls."""
