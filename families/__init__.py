"""The bundled transaction families: their rules and the builders for clients."""
