// The live tail's WebSocket: opened again when it is lost, ever more slowly, unless the server said why.

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 15000;
const FOR_GOOD = new Set([4400, 4401, 4403, 4429]);
const WHEN_SEEN = new Set([4408, 4409]);

export class TailSocket {
  // `on` has opened(isAgain), frame(data), status(words, kind).
  constructor(path, on) {
    this.url = new URL(path, location.href);
    this.url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    this.on = on;
    this.pause = FIRST_PAUSE;
    this.wasOpen = false;
    this.socket = null;
    this.timer = null;
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && this.isResting) this.connect();
    });
    addEventListener("online", () => this.timer && this.connect());
  }

  connect() {
    clearTimeout(this.timer);
    this.timer = null;
    this.isResting = false;
    if (this.socket) return;
    this.on.status(this.wasOpen ? "Connecting again…" : "Connecting…", "warn");
    this.reason = "the server refused";
    const socket = new WebSocket(this.url);
    this.socket = socket;
    socket.addEventListener("open", () => {
      this.on.opened(this.wasOpen);
      this.wasOpen = true;
    });
    socket.addEventListener("message", (event) => {
      this.pause = FIRST_PAUSE;
      const data = JSON.parse(event.data);
      if (data.type === "end") {
        this.reason = data.reason;
        return;
      }
      try {
        this.on.frame(data);
      } finally {
        this.send({ type: "ack", seq: data.seq });
      }
    });
    socket.addEventListener("close", (event) => this.onClose(event));
  }

  get isOpen() {
    return this.socket?.readyState === WebSocket.OPEN;
  }

  send(message) {
    if (this.isOpen) this.socket.send(JSON.stringify(message));
  }

  onClose(event) {
    this.socket = null;
    if (FOR_GOOD.has(event.code)) {
      this.on.status(`Closed: ${this.reason}.`, "bad", event.code);
    } else if (WHEN_SEEN.has(event.code) && document.hidden) {
      this.isResting = true;
      this.on.status("Resting while nobody looks.", "warn");
    } else {
      // At the same moment all pages of a server that comes back would ask.
      const pause = this.pause * (0.7 + Math.random() * 0.6);
      this.pause = Math.min(this.pause * 2, LONGEST_PAUSE);
      this.on.status(`Connection lost, trying again in ${Math.max(1, Math.round(pause / 1000))} s.`, "bad");
      this.timer = setTimeout(() => this.connect(), pause);
    }
  }
}
