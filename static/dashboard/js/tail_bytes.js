// Keys, values and headers as they are shown: text, JSON, hex. All of it is somebody else's, so it
// becomes text nodes and nothing else.

export function bytesOf(data) {
  if (data.base64 === undefined) return new TextEncoder().encode(data.text);
  return Uint8Array.from(atob(data.base64), (character) => character.charCodeAt(0));
}

export function hexOf(data) {
  const bytes = bytesOf(data);
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const part = [...bytes.subarray(at, at + 16)];
    const hex = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const text = part.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex}  ${text}`);
  }
  return lines.join("\n");
}

// Indented without being parsed into numbers: 64-bit ones would lose digits. Null when it is no JSON.
export function jsonOf(text) {
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  const pieces = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  let depth = 0;
  let out = "";
  const line = () => `\n${"  ".repeat(depth)}`;
  for (let index = 0; index < pieces.length; index += 1) {
    const piece = pieces[index];
    if (piece === "{" || piece === "[") {
      const close = piece === "{" ? "}" : "]";
      if (pieces[index + 1] === close) {
        out += piece + close;
        index += 1;
      } else {
        depth += 1;
        out += piece + line();
      }
    } else if (piece === "}" || piece === "]") {
      depth -= 1;
      out += line() + piece;
    } else if (piece === ",") out += piece + line();
    else if (piece === ":") out += ": ";
    else out += piece;
  }
  return out;
}

// What cannot be seen, or turns the direction of what follows, is shown as what it is: a value cannot
// hide or reorder what stands beside it. The same characters as on pages (dashboard/scan/rendering.py).
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

export function visible(text) {
  return text.replace(UNSEEN, (character) => {
    const code = character.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    return code === 0x7f ? "\u2421" : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

// In one line of a table: `longest` characters, or a word for what is none.
export function brief(data, longest, missing) {
  const place = document.createDocumentFragment();
  const word = (text) => {
    const span = document.createElement("span");
    span.className = "none";
    span.textContent = text;
    place.append(span);
  };
  if (data === null) word(missing);
  else if (data.size === 0) word("empty");
  else if (data.text === undefined) {
    const bytes = bytesOf(data).subarray(0, 24);
    word(`0x${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}${data.size > 24 ? "…" : ""}`);
  } else place.append(visible(data.text.length > longest ? `${data.text.slice(0, longest)}…` : data.text));
  return place;
}

export function sizeOf(count) {
  if (count < 1024) return `${count} B`;
  const units = ["KiB", "MiB", "GiB"];
  let value = count / 1024;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}
