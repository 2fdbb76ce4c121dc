// Questions to the server by fetch; `messageApi` of widget.js has the same methods.

/** An answer that says what is wrong (RFC 9457). */
export class Problem extends Error {
  constructor(data) {
    super(data.detail || data.title || "the server did not answer the question");
    this.name = "Problem";
    this.data = data;
    this.kind = String(data.type || "").replace("/errors/", "");
  }
}

/** No answer: the server is gone or busy. */
export class Lost extends Error {
  constructor(message, wait = null) {
    super(message);
    this.name = "Lost";
    this.wait = wait; // seconds
  }
}

const LONGEST_WAIT = 8; // seconds between tries

/** Ask until the server answers; `onLost` says that it does not. Ends with an error once nobody waits. */
export async function insisted(ask, onLost, isStale = () => false) {
  for (let wait = 0.5; ; wait = Math.min(2 * wait, LONGEST_WAIT)) {
    try {
      return await ask();
    } catch (error) {
      if (isStale() || !(error instanceof Lost)) throw error;
      onLost();
      await new Promise((resolve) => setTimeout(resolve, 1000 * (error.wait || wait)));
      if (isStale()) throw error;
    }
  }
}

const RETRY = new Set([502, 503, 504]);

async function problemOf(response) {
  try {
    return new Problem(await response.json());
  } catch {
    return new Problem({ title: `${response.status} ${response.statusText}`, status: response.status });
  }
}

export function httpApi({ base = "", token = () => null } = {}) {
  async function call(path, { method = "GET", body, type, signal } = {}) {
    const headers = {};
    if (type) headers["Content-Type"] = type;
    if (token()) headers.Authorization = `Bearer ${token()}`;
    let response;
    try {
      response = await fetch(base + path, { method, headers, body, signal, cache: method === "GET" ? "no-cache" : "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Lost("the server does not answer");
    }
    if (RETRY.has(response.status)) {
      throw new Lost(response.status === 503 ? "the server is busy" : "the server does not answer", Number(response.headers.get("Retry-After")) || null);
    }
    if (!response.ok) throw await problemOf(response);
    return response;
  }
  const json = async (path, options) => (await call(path, options)).json();
  const network = (id) => `/v1/networks/${encodeURIComponent(id)}`;
  return {
    hasToken: () => Boolean(token()),
    address: (id, rest) => new URL(base + network(id) + rest, window.location.href).href,
    form: () => json("/v1/form"),
    networks: () => json("/v1/networks"),
    network: (id) => json(network(id)),
    layout: (id, nodes, [width, height], isPage, signal) => json(`${network(id)}/layout?width=${width}&height=${height}${isPage ? "&page=1" : ""}&${nodes ? `nodes=${nodes.join(",")}` : "most=400"}`, { signal }),
    model: (id) => json(`${network(id)}/model`),
    put: (id, body, type, format = "") => json(`${network(id)}${format ? `?format=${encodeURIComponent(format)}` : ""}`, { method: "PUT", body, type }),
    saved: (id, format) => call(`${network(id)}/file?format=${format}`),
    overview: (id) => json(`${network(id)}/layout?overview=1`),
    cpt: (id, name, signal) => json(`${network(id)}/cpt/${encodeURIComponent(name)}`, { signal }),
    ask: (id, question, body, signal) =>
      json(`${network(id)}/${question}`, { method: "POST", body: JSON.stringify(body), type: "application/json", signal }),
    columns: (id, text) => json(`${network(id)}/columns`, { method: "POST", body: text, type: "text/csv" }),
    table: (id, query, file, type, signal) => call(`${network(id)}/table?${query}`, { method: "POST", body: file, type, signal }),
    job: (url, options = {}) => json(url, options),
    file: (url) => call(url),
    cancel: (url) => call(url, { method: "DELETE" }),
  };
}
