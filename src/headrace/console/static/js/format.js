// SPDX-License-Identifier: Apache-2.0
// Numbers, sizes and times as text. What is not known (null) is "–", never 0.
export const UNKNOWN = "–";

const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);

export const number = (value) => (known(value) ? Math.round(value).toLocaleString("en") : UNKNOWN);

const scaled = (value, step, units) => {
  let scale = 0;
  while (Math.abs(value) >= step && scale < units.length - 1) {
    value /= step;
    scale += 1;
  }
  const digits = scale === 0 || Math.abs(value) >= 100 ? 0 : 1;
  return `${value.toFixed(digits)}${units[scale]}`;
};

// 1,234 stays; 1234567 is "1.2M".
export const short = (value) =>
  !known(value) ? UNKNOWN : Math.abs(value) < 10_000 ? number(value) : scaled(value, 1000, ["", "k", "M", "G", "T"]);

export const bytes = (value) =>
  known(value) ? scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"]) : UNKNOWN;

export const rate = (value) =>
  !known(value) ? UNKNOWN : value > 0 && value < 10 ? `${value.toFixed(1)}/s` : `${short(value)}/s`;

export function duration(milliseconds) {
  if (!known(milliseconds)) return UNKNOWN;
  const seconds = milliseconds / 1000;
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} days`;
}

// "3 s", or "≥ 3 s" where the broker knows only that much.
export const behind = (milliseconds, atLeast) => (atLeast && known(milliseconds) ? "≥ " : "") + duration(milliseconds);

const two = (value) => String(value).padStart(2, "0");

// The browser's time zone: "14:03:07", with the day when it is another one.
export function time(milliseconds, now = Date.now()) {
  if (!known(milliseconds)) return UNKNOWN;
  const moment = new Date(milliseconds);
  const clock = [moment.getHours(), moment.getMinutes(), moment.getSeconds()].map(two).join(":");
  return moment.toDateString() === new Date(now).toDateString() ? clock : `${day(moment)} ${clock}`;
}

const day = (moment) => [moment.getFullYear(), two(moment.getMonth() + 1), two(moment.getDate())].join("-");

export const ago = (milliseconds, now = Date.now()) =>
  known(milliseconds) ? `${duration(Math.max(0, now - milliseconds))} ago` : UNKNOWN;

export const count = (value, one, many = `${one}s`) => `${number(value)} ${value === 1 ? one : many}`;

export const percent = (share) => (known(share) ? `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %` : UNKNOWN);
