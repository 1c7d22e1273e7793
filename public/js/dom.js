/** Builds elements and SVG. Text always becomes a text node, never markup. */

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * Makes an HTML element: `on…` attributes are listeners, `true` is a bare attribute,
 * and what is null, undefined or false is left out.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/**
 * Makes an SVG element in the same way.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  return fill(/** @type {SVGElement} */ (element), attributes, children);
}

/** Whether there is room beside things: the style sheet's own breakpoint. */
export function wide() {
  return !matchMedia("(max-width: 45rem)").matches;
}

/**
 * Replaces what a node holds.
 * @param {Element} node
 * @param {...(Child | Child[])} children
 */
export function put(node, ...children) {
  node.replaceChildren(...nodes(children));
}

/**
 * @template {Element} E
 * @param {E} element
 * @param {Record<string, any>} attributes
 * @param {(Child | Child[])[]} children
 * @returns {E}
 */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...nodes(children));
  return element;
}

/**
 * @param {(Child | Child[])[]} children
 * @returns {(Node | string)[]}
 */
function nodes(children) {
  return children
    .flat()
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : String(child)));
}
