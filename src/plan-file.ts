// One step of a --dry-run: what writing a file would change. Changes nothing; a secret file is described without its
// content.

import { hasMode, readTextIfThere } from "./files.ts";
import { diff, type Step } from "./plan.ts";

/** What writing `content` to `path` would change. `secret` keeps content and diff out of the plan. */
export function planFile(
  path: string,
  content: string,
  mode: number,
  options: { secret?: boolean } = {},
): Step {
  const before = readTextIfThere(path);
  const modeText = `0${mode.toString(8)}`;
  if (before === undefined) {
    return {
      step: "file",
      path,
      mode: modeText,
      change: "created",
      ...(options.secret ? {} : { diff: diff("", content) }),
    };
  }
  if (before === content && hasMode(path, mode))
    return { step: "file", path, mode: modeText, change: "same" };
  return {
    step: "file",
    path,
    mode: modeText,
    change: "changed",
    ...(options.secret ? {} : { diff: diff(before, content) }),
  };
}
