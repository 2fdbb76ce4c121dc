// The token of the server, in the storage of this tab.

const TOKEN_KEY = "jtgpu-token";

/** The token of the address goes to the storage of this tab, out of links and history. */
export function takeToken() {
  const found = /(?:^#|&)token=([^&]*)/.exec(window.location.hash);
  if (!found) return;
  saveToken(decodeURIComponent(found[1]));
  const rest = window.location.hash.slice(1).split("&").filter((part) => !part.startsWith("token="));
  window.history.replaceState(null, "", `${window.location.pathname}${window.location.search}${rest.length ? `#${rest.join("&")}` : ""}`);
}

export function saveToken(token) {
  sessionStorage.setItem(TOKEN_KEY, token);
}

export function savedToken() {
  return sessionStorage.getItem(TOKEN_KEY);
}
