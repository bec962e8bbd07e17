// Times and amounts as text. Exact ones are in the browser's zone; copies are in UTC.

import { computed, signal } from "@preact/signals";

/** The time of this browser, every ten seconds: relative times follow it. */
export const now = signal(Date.now());
setInterval(() => {
  now.value = Date.now();
}, 10_000);

/** Short Swedish dates are those of ISO 8601. */
const iso = "sv";
/** Languages that dates can be written in, by their tag. */
export const dateLanguages = [
  ["", "as the browser does"],
  [iso, "2026-11-23 14:05 (ISO 8601)"],
  ["en-GB", "English, 23 Nov 2026"],
  ["en-US", "English, Nov 23, 2026"],
  ["de", "Deutsch"],
  ["es", "Español"],
  ["fr", "Français"],
  ["ja", "日本語"],
] as const;
const languageKey = "date-language";

/** The chosen tag, "" for that of the browser. Kept in this browser, not with the user. */
export const dateLanguage = signal(storedLanguage());

function storedLanguage(): string {
  const stored = localStorage.getItem(languageKey) ?? "";
  return dateLanguages.some(([tag]) => tag === stored) ? stored : "";
}

/** `tag`: a language (BCP 47), or "" for that of the browser. It is kept in this browser. */
export function chooseDateLanguage(tag: string): void {
  localStorage.setItem(languageKey, tag);
  dateLanguage.value = tag;
}

const language = () => (dateLanguage.value === "" ? undefined : dateLanguage.value);

export const timeFormat = (options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat =>
  new Intl.DateTimeFormat(language(), options);

const exactFormat = computed(() =>
  timeFormat({ dateStyle: language() === iso ? "short" : "medium", timeStyle: "long" }),
);

/** Date and time to the second, in the chosen language. `at`: ms since 1970. */
export function exact(at: number): string {
  return exactFormat.value.format(at);
}

const dayFormat = computed(() => timeFormat({ day: "numeric", month: "long" }));
const shortDayFormat = computed(() => timeFormat({ weekday: "short", day: "numeric" }));

/** "26 November", and "Thu 26". */
export const dayWords = (at: number): string => dayFormat.value.format(at);
export const shortDay = (at: number): string => shortDayFormat.value.format(at);

/** ISO 8601 in UTC, for copies. */
export function utc(at: number): string {
  return new Date(at).toISOString();
}
