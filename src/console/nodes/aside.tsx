// A node beside the list: what is wrong, its paths, its facts and its last changes.

import { currentSlug, mayAdminister } from "../contact/me.ts";
import { pathOf } from "../frame/router.ts";
import { Button } from "../ui/button.tsx";
import { Empty, Failure, Loading } from "../ui/parts.tsx";
import { Changed, NodeFacts } from "../node/facts.tsx";
import { noPathsOf } from "./states.ts";
import { NodeMenu, StatePill, useActions, useNode } from "../node/page.tsx";
import { inOrder, PathRow } from "../node/paths.tsx";
import { WhyOf } from "../node/why.tsx";

/** More are on the page. */
const maxPaths = 6;
const maxChanges = 5;

export function Aside({ id, close }: { id: number; close(): void }) {
  const { node, error, peers } = useNode(`${id}`);
  const { ask, dialog } = useActions(node);
  const href = pathOf(currentSlug.value ?? "", "nodes", id);
  const buttons = (
    <>
      <span class="spring" />
      <Button kind="ghost" isSmall={true} icon="open" label="Open the page" href={href} />
      {node === undefined || !mayAdminister.value ? null : <NodeMenu node={node} ask={ask} isSmall={true} />}
      <Button kind="ghost" isSmall={true} icon="close" label="Close" onClick={close} />
    </>
  );
  if (node === undefined)
    return (
      <aside class="aside" aria-label="Node">
        <header>{buttons}</header>
        <section>
          {error === undefined ? <Loading rows={8} /> : null}
          {error?.status === 404 ? <Empty text="There is no such node. It may have been deleted." /> : null}
          {error === undefined || error.status === 404 ? null : <Failure error={error} />}
        </section>
      </aside>
    );
  const paths = inOrder(peers.data ?? []);
  const why = <WhyOf node={node} peers={peers.data} isShort={true} />;
  return (
    <aside class="aside" aria-label={node.name}>
      <header>
        <h2 class="cut">
          <a class="name" href={href} title={node.name}>
            <bdi>{node.name}</bdi>
          </a>
        </h2>
        <StatePill node={node} peers={peers.data} />
        {buttons}
      </header>
      <section class="if-any">{why}</section>
      {mayAdminister.value ? (
        <section>
          <h2>Paths</h2>
          {paths.length === 0 ? (
            <p class="quiet">{peers.data === undefined ? "" : noPathsOf(node)}</p>
          ) : (
            <table class="t paths">
              <tbody>
                {paths.slice(0, maxPaths).map((peer) => (
                  <PathRow key={peer.peer_address} node={node} peer={peer} isShort={true} />
                ))}
              </tbody>
            </table>
          )}
          {paths.length > maxPaths ? (
            <p class="mt8">
              <a href={href}>and {paths.length - maxPaths} more</a>
            </p>
          ) : null}
        </section>
      ) : null}
      <section>
        <h2>Facts</h2>
        <NodeFacts node={node} isShort={true} />
      </section>
      <section>
        <h2>Changed</h2>
        <Changed node={node} count={maxChanges} />
      </section>
      {dialog}
    </aside>
  );
}
