"""The bundled transaction families: business rules and client-side builders, nothing else."""
