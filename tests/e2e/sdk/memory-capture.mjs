// Before the product makes its WebAssembly instance: remembers it.

const RealInstance = WebAssembly.Instance;
globalThis.__wasmInstances = [];
WebAssembly.Instance = function Instance(...args) {
  const instance = new RealInstance(...args);
  globalThis.__wasmInstances.push(instance);
  return instance;
};
