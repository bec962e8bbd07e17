// One node's configuration beside the newest one.

import { nodesApi } from "../../api/nodes.ts";
import { apiPath, type Path, type SentOf } from "../../api/endpoint.ts";
import { useEffect, useState } from "preact/hooks";
import type { Node } from "../../protocol/node.ts";
import { ApiError, get } from "../contact/api.ts";
import { currentSlug } from "../contact/me.ts";
import { behindWords } from "../nodes/states.ts";
import { useResource } from "../contact/resource.ts";
import { now } from "../words/times.ts";
import { Panel, TerminalButton } from "../ui/page.tsx";
import { Failure, Line } from "../ui/parts.tsx";

type Changes = SentOf<typeof nodesApi.diff>;

export function Configuration({ node }: { node: Node }) {
  const slug = currentSlug.value ?? "";
  const path = apiPath(nodesApi.diff, { slug, id: node.id });
  const { data, error } = useChanges(path, node);
  // A node that has not registered has no configuration yet.
  if (error !== undefined && error.status === 409) return null;
  return (
    <Panel
      id="configuration"
      title="Configuration"
      hasRoom={true}
      actions={<TerminalButton command={["diff", slug, node.name]} call={["GET", path]} isSmall={true} />}
    >
      <Failure error={error} />
      {data === undefined ? null : <Difference node={node} found={data} />}
    </Panel>
  );
}

function Difference({ node, found }: { node: Node; found: Changes }) {
  const { is_known, applied_config_version: applied, config_version: newest, changes } = found;
  if (applied !== null && applied >= newest) return <p>It has applied the newest configuration, {newest}.</p>;
  const { words, isFault } = behindWords(node, {
    isSent: found.not_applied_since !== null,
    now: now.value,
  });
  const standing = (
    <>
      <p class={isFault ? "limited" : undefined}>{words}</p>
      {isFault ? <ApplyLines /> : null}
    </>
  );
  if (!is_known)
    return (
      <>
        {standing}
        <p>The control plane does not know which files it has, so it cannot compare them.</p>
        <Newest node={node} />
      </>
    );
  if (changes.length === 0)
    return (
      <>
        {standing}
        <p>Its files stay the same.</p>
      </>
    );
  return (
    <>
      {standing}
      <p>The newest changes this:</p>
      {changes.map(({ file, diff }) => (
        <section key={file}>
          <h3>{file}</h3>
          {diff === null ? (
            <p class="quiet">It changes. It is too long to be compared.</p>
          ) : (
            <Unified text={diff} />
          )}
        </section>
      ))}
    </>
  );
}

/** What to do on a node that lacks a configuration. */
export function ApplyLines() {
  return (
    <>
      <p>On the machine, the first shows what the newest changes, the second applies it or says why not:</p>
      <Line text="sudo agent sync-config --dry-run" />
      <Line text="sudo agent sync-config" />
    </>
  );
}

/** Reads the changes after each reading of the node, not beside it: they are refused for a node that was just revoked. */
function useChanges(path: Path<Changes>, node: Node) {
  const [found, setFound] = useState<{ data?: Changes; error?: ApiError }>({});
  useEffect(() => {
    const ended = new AbortController();
    get(path, ended.signal).then(
      (data) => ended.signal.aborted || setFound({ data }),
      (error: unknown) => {
        if (ended.signal.aborted) return;
        if (!(error instanceof ApiError)) throw error;
        setFound({ error });
      },
    );
    return () => ended.abort();
  }, [path, node]);
  return found;
}

/** The newest configuration, read when it is asked for. */
function Newest({ node }: { node: Node }) {
  const [isOpen, setOpen] = useState(false);
  const path = apiPath(nodesApi.config, { slug: currentSlug.value ?? "", id: node.id });
  // The empty path sends no request.
  const { data, error } = useResource(isOpen ? path : "");
  return (
    <details onToggle={({ target }: Event) => setOpen(target instanceof HTMLDetailsElement && target.open)}>
      <summary>The newest configuration, config.yml</summary>
      <Failure error={error} />
      {data === undefined ? null : (
        <pre class="diff" tabindex={0}>
          {data.config_yml}
        </pre>
      )}
    </details>
  );
}

/** A unified diff, whose removed and added lines are marked up. The lines of its head (---, +++) are not. */
function Unified({ text }: { text: string }) {
  return (
    <pre class="diff" tabindex={0}>
      {text.split("\n").map((line) => {
        if (/^-(?!-- )/.test(line))
          return (
            <del>
              {line}
              {"\n"}
            </del>
          );
        return /^\+(?!\+\+ )/.test(line) ? (
          <ins>
            {line}
            {"\n"}
          </ins>
        ) : (
          <span>
            {line}
            {"\n"}
          </span>
        );
      })}
    </pre>
  );
}
