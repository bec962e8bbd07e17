// Lines of the engine's log, in the formats of all versions from 1.6.1 on, and what they show.

/** Longer log lines are cut before parsing. The engine's own lines have a few hundred characters. */
const maxLineLength = 16_384;

export type EngineLine = {
  /** RFC 3339, as the engine wrote it; undefined if timestamps are disabled. */
  time: string | undefined;
  level: "trace" | "debug" | "info" | "warn" | "error" | "fatal";
  msg: string;
  fields: Record<string, unknown>;
};

/** Parses a log line, JSON or text, of either of the engine's two loggers. Undefined for other text. */
export function parseLogLine(line: string): EngineLine | undefined {
  const fields = line.startsWith("{") ? jsonFields(line) : textFields(line.slice(0, maxLineLength));
  const msg = fields?.["msg"];
  if (fields === undefined || typeof msg !== "string") return undefined;
  const { time, level, msg: _, ...rest } = fields;
  return {
    time: typeof time === "string" ? time : undefined,
    level: readLevel(String(level)),
    msg,
    fields: rest,
  };
}

/** The message with its reason: "Cannot load …: reason". */
export function describe(line: EngineLine): string {
  const reason = line.fields["error"];
  return typeof reason === "string" ? `${line.msg}: ${reason}` : line.msg;
}

/** The last line in which the engine complains: an error, or the panic of its runtime. */
export function lastComplaint(lines: readonly string[]): string | undefined {
  return lines.findLast((line) => {
    const level = parseLogLine(line)?.level;
    return (
      level === "error" || level === "fatal" || (level === undefined && /^(panic|fatal error): /.test(line))
    );
  });
}

/** The fields of a line that is a JSON object. */
export function jsonFields(line: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === "object" && value !== null ? { ...value } : undefined;
  } catch {
    // Part of a line, after a crash.
    return undefined;
  }
}

/** key=value and key="quoted value": the text format of both loggers. */
function textFields(line: string): Record<string, unknown> | undefined {
  const fields: Record<string, unknown> = {};
  for (const [, key = "", quoted, bare] of line.matchAll(
    /(?<![\w.])([\w.]+)=(?:"((?:[^"\\]|\\.)*)"|(\S*))/g,
  )) {
    fields[key] =
      quoted === undefined ? bare : quoted.replace(/\\(.)/g, (_, char) => (char === "n" ? "\n" : char));
  }
  return fields["level"] === undefined ? undefined : fields;
}

/** "debug-4" and the like are finer levels of the newer logger. Unknown levels count as info. */
function readLevel(text: string): EngineLine["level"] {
  const level = text.toLowerCase();
  if (level.startsWith("debug-")) return "trace";
  if (level.startsWith("warn")) return "warn";
  if (level === "panic" || level === "fatal") return "fatal";
  return level === "error" || level === "debug" || level === "trace" ? level : "info";
}

/** All versions log this when the interface is up. From then on SIGHUP no longer kills the engine. */
export function isReady(line: EngineLine): boolean {
  return line.msg === "Nebula interface is active";
}

/**
 * What a line shows about a reload. All versions first log "begun", then "applied" for certificates and key, even if
 * nothing changed. They log nothing at the end.
 */
export function reloadEvidence(line: EngineLine): "begun" | "applied" | "failed" | undefined {
  if (line.msg === "Caught HUP, reloading config") return "begun";
  if (/^Client cert(ificate\(s\))? refreshed from disk$/.test(line.msg)) return "applied";
  return line.level === "error" && failedReload.test(line.msg) ? "failed" : undefined;
}

/** Each part of the engine has its own message for a failed reload. Errors about peers must not match. */
const failedReload =
  /reload|refresh|reconfigure|configure the logger|load client cert|load ca from config|in new (v\d )?cert|Removing a V2 cert|marshaling (new|old) config|tun mtu|tun tx queue/i;

/** This many lines with the same error, among some hundred, are a flood. */
const floodLines = 100;

/** Whether these lines are a flood of one error. The engine writes one for each invalid handshake. */
export function isFlood(lines: readonly string[]): boolean {
  const errors = lines.flatMap((line) => {
    const parsed = parseLogLine(line);
    return parsed?.level === "error" ? [parsed.msg] : [];
  });
  return [...Map.groupBy(errors, (msg) => msg).values()].some(({ length }) => length >= floodLines);
}
